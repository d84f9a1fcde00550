"""The Python side of each sensor: find, build, load and switch on.

The registry is `model/sensors.py`: a new sensor begins there. `process`
switches all sensors on; `phase` is the user's mark; each sensor has files of its own. May be imported from it: by
`agent`, `testbed` and `surface`, and by the training process through the entry point `torch.backends`. A sensor that
fails switches itself off and says it once; training goes on. Implements the sensors of CCL-D section 4.1.
"""
