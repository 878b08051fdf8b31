"""Files of the data folder: synced writes, uploads and artifacts, copies of folders."""
