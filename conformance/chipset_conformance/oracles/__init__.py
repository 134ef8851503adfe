"""What each function of the table should give, in a wider type, with its error bound."""
