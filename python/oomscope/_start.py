"""`DIR/.recorder/sitecustomize.py`, which Python imports at startup: gives its place to the recorder."""

import sys

from _oomscope import _recorder

sys.modules[__name__] = _recorder
_recorder.run_as_sitecustomize(__file__)
