"""`python -m cubinet`."""

from cubinet.cli import main

if __name__ == "__main__":
    main()
