"""The forms of requests and answers. The client checks the values, so that every interface checks them alike."""
