"""The vocabulary's operators in plain torch, in the form of their contracts; a package gets the one it is for."""
