"""The properties that SET, the configuration and requests can name: what each is called, may say and says if nobody
sets it. What they do lives with the records that read them (`QuerySettings`, `PullLimits`, `ServerSettings`, …).
"""
