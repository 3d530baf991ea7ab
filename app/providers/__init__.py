"""Language models: endpoints that speak OpenAI's protocol, the built-in demo, token counting.

Only this room knows a vendor's wire format and errors. It makes one attempt a call and says what
went wrong; whether there is another attempt is decided by the core.
"""
