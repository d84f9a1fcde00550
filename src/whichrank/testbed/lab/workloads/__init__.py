"""Real training jobs for the lab, each an ordinary script on torch.distributed that runs under torchrun as it is.

They know nothing of faults, hang timeouts or sensors: what an injector can do to them goes through `demo.seat`, as in
the demo job. Compute is real and small, beside a sleep that stands for the time of a device, so that 16 ranks on two
cores behave like 16 devices.
"""
