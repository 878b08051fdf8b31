"""Knowledge: folders and uploads that sessions can search. Keeps the list of them and their indexes."""
