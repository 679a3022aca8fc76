"""XML in texts: documents, XPath 1.0 over them, and the functions that use both.

Documents and paths come from strangers, so both must end: libxml2 cannot be stopped while it searches, and elementpath
(5.1) gives nodes in another order than the document's and finds no `[@id=1]`. So XPath is our own.
"""
