"""What clients send and receive, a page for each resource.

Bodies are read through these. Answers are written by the use cases, not through them: they are for
the document, and a test compares them with real answers.
"""
