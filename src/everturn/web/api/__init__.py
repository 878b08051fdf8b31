"""The endpoints, one file per noun. Each declares what it takes and answers; none knows about HTTP."""
