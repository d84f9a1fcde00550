"""What is done about a finding: pause the job and validate (Greyhound, sections 4.3 and 6); later mitigate and steer.

Takes findings and never makes them. Pure as all rooms that decide are: what ranks say comes in, what they are asked
goes out, the clock is an argument. `server` and `surface` carry both to real ranks.
"""
