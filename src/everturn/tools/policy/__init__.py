"""The policy: whether a call may run, must be asked about, or is denied."""
