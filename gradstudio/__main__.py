"""`python -m gradstudio` is `gradstudio`."""

from gradstudio.cli import main

if __name__ == "__main__":
    main()
