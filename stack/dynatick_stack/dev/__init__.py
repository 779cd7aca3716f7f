"""``dynatick dev``: the whole system on this machine, with the handlers of a project, deployed anew at each save."""
