"""The user's own tools and hooks: functions in files of the data folder and in installed packages."""
