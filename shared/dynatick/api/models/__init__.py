"""The forms of requests; those of answers are the views. The client checks the values, so that every interface checks
them alike."""
