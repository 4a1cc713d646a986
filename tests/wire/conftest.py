"""Property tests of this folder: no deadline, because a busy machine is no fault of the code."""

from hypothesis import settings

settings.register_profile("wire", deadline=None)
settings.load_profile("wire")
