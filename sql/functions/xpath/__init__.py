"""XML in texts: documents, XPath 1.0 over them, and the functions that use both.

Documents and paths are untrusted, so evaluation must end: libxml2 cannot be stopped during a search, and elementpath
(5.1) returns nodes in another order than the document's and does not support `[@id=1]`. So the XPath implementation is
our own.
"""
