"""The kit that Cubinet is tested with, for those who write a compiler, a layer or a library on top.

`contracts`, `remotes` and `loaders` have one pytest class for each seam; `strategies` makes values for hypothesis;
`faults` has file systems that count, fail or die; `fake_compiler` is a compiler that needs no toolkit; `samples` makes
whole builds. `contracts` and `strategies` need what `cubinet[test]` installs.
"""

import sys

if "pytest" in sys.modules:  # so that a broken contract shows the values it compared
    for name in ("contracts", "loaders", "remotes"):
        sys.modules["pytest"].register_assert_rewrite(f"cubinet.testing.{name}")
