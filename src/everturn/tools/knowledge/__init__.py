"""Knowledge: folders and uploads that sessions search by their words; what there is, its index, its
upkeep."""
