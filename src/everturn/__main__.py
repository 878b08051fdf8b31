"""python -m everturn"""

from everturn.cli import main

if __name__ == "__main__":
    main()
