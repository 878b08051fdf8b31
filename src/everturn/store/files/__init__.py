"""Files of the data folder: synced writes and copies of folders."""
