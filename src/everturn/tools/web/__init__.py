"""The tool that fetches a web page as readable text."""
