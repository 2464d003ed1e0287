"""Small servers of people whom the planner never met, each with ordinary questions and what is
right: the call, or no call. The planner is improved with the first two and with what the libraries
document; the apiary is only for measuring.
"""
