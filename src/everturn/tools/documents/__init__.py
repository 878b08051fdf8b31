"""Converts documents to text in a child process, and stores and searches the text."""
