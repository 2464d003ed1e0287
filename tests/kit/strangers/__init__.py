"""Small servers of people whom the planner never met, each with ordinary questions and what is
right: the call, or no call. The planner was improved with the tool shed, the choir, the greenhouse,
the film archive, the observatory, the campsite and what the libraries document; the others are only
for measuring.
"""
