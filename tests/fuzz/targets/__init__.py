"""One module for each reader of untrusted bytes: `seeds()`, `WORDS` and `check(data)`."""
