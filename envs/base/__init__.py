"""The nouns that every layer shares, and what needs nothing but them: types, errors, the action grammar, spaces."""
