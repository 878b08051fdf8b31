"""Tools of the user: functions in files of the data folder and in installed packages."""
