"""Tools that read, write, edit, list and search the files of a workspace."""
