"""The kit that Cubinet is tested with, for those who write a compiler, a layer or a library on top.

`contracts` has one pytest class for each seam; `strategies` makes values for hypothesis; `faults` has file
systems that count, fail or die; `fake_compiler` is a compiler that needs no toolkit; `samples` makes whole
builds. The modules need what `cubinet[test]` installs; import the ones you use.
"""
