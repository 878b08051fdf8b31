"""Lives of a store or an engine that are cut off: by a kill, without power, by a failing disk or database."""
