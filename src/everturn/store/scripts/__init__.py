"""What every transaction is made of: the script, its rows, and the pieces that scripts share."""
