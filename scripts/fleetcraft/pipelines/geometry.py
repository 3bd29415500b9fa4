"""The arithmetic of latents: which video shapes a family can express, and how large its latents are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """How a family's VAE and transformer cut a video up.

    vae_stride : frames, rows and columns of pixels that one latent position covers.
    patch : latent positions that one token covers, in the same order.
    channels : channels of the latents.
    frame_step : frames that a video can grow by, where they are more than the VAE's stride.
    """

    vae_stride: tuple[int, int, int]
    patch: tuple[int, int, int]
    channels: int
    frame_step: int | None = None

    def latent_shape(self, width: int, height: int, frames: int) -> tuple[int, int, int, int]:
        """Shape of one sample's latents: [channels, frames, height, width]. The first frame has a latent of its own."""
        time, rows, columns = self.vae_stride
        return self.channels, (frames - 1) // time + 1, height // rows, width // columns

    def tokens(self, width: int, height: int, frames: int) -> int:
        """Video tokens of one transformer forward. Latent frames that don't fill a patch are padded in front."""
        _, time, rows, columns = self.latent_shape(width, height, frames)
        return -(-time // self.patch[0]) * (rows // self.patch[1]) * (columns // self.patch[2])

    def problem(self, width: int, height: int, frames: int) -> tuple[str, str] | None:
        """The first thing that makes this shape impossible, as (key, explanation); None where it is possible.

        A pipeline would round such a shape silently.
        """
        for key, pixels, stride, patch in (
            ("width", width, self.vae_stride[2], self.patch[2]),
            ("height", height, self.vae_stride[1], self.patch[1]),
        ):
            multiple = stride * patch
            if pixels % multiple:
                below = pixels // multiple * multiple
                choice = f"{below} or {below + multiple}" if below else str(multiple)
                return key, f"{pixels} is no multiple of {multiple}; use {choice}"
        step = self.frame_step or self.vae_stride[0]
        if (frames - 1) % step:
            below = (frames - 1) // step * step + 1
            choice = f"{below} or {below + step}" if below > 1 else str(below + step)
            return "frames", f"the VAE can't express {frames} frames, only {step}·n + 1; use {choice}"
        return None
