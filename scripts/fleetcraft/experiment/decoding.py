"""What an experiment file may say of decoding: how latents become frames, the same for all arms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from fleetcraft.ground.documents import Model
from fleetcraft.pipelines.families import Family


class SpatialTiles(Model):
    """Decode frames in tiles that overlap and are blended: less device memory, other pixels."""

    width: int = Field(ge=1, description="Pixels of a tile")
    height: int = Field(ge=1, description="Pixels of a tile")
    stride_width: int = Field(ge=1, description="Pixels from one tile to the next; what they overlap is blended")
    stride_height: int = Field(ge=1, description="Pixels from one tile to the next; what they overlap is blended")


class TemporalTiles(Model):
    """Decode in tiles of time that overlap and are blended: memory that doesn't grow with the video, other pixels."""

    frames: int = Field(ge=1, description="Frames of a tile")
    stride: int = Field(ge=1, description="Frames from one tile to the next; what they overlap is blended")


class Decode(Model):
    """How latents become frames. Whatever is said here is part of the key of every video."""

    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Type of the VAE's weights")
    tiling: SpatialTiles | None = Field(None, description="Tiles of frames; null decodes whole frames")
    temporal_tiles: TemporalTiles | None = Field(
        None, description="Tiles of time, for families that see the whole video otherwise; null is the family's own way"
    )
    slicing: Literal[False] = Field(False, description="Always false: it splits batches, and videos are decoded alone")

    @field_validator("slicing", mode="before")
    @classmethod
    def _nothing_to_slice(cls, given: Any) -> Any:
        if given is True:
            raise ValueError("slicing splits a batch, and each video is decoded alone: it would change nothing")
        return given

    def as_key(self) -> dict[str, Any]:
        """The settings as they enter a key. At their defaults they are what they were before there were settings."""
        temporal = {} if self.temporal_tiles is None else {"temporal_tiles": self.temporal_tiles.model_dump()}
        tiling = self.tiling.model_dump() if self.tiling else False
        return {"dtype": self.dtype, "tiling": tiling, "slicing": False, **temporal}

    def problem(self, family: Family, width: int, height: int, frames: int) -> tuple[str, str] | None:
        """The first setting that a family can't follow for such videos, as (key, explanation); None if there is none.

        A VAE would round such tiles, or leave them be, and say nothing.
        """
        time, rows, columns = family.geometry.vae_stride
        if tiles := self.tiling:
            for size, value, least in (
                ("width", tiles.width, columns),
                ("height", tiles.height, rows),
                ("stride_width", tiles.stride_width, columns),
                ("stride_height", tiles.stride_height, rows),
            ):
                if value % least:
                    return f"tiling.{size}", f"{value} is no multiple of {least}, the VAE's stride"
            for side in ("width", "height"):
                size, stride = getattr(tiles, side), getattr(tiles, f"stride_{side}")
                if stride > size:
                    return f"tiling.stride_{side}", f"{stride} would leave gaps between tiles of {size}"
            if width <= tiles.width and height <= tiles.height:
                text = f"one tile of {tiles.width}×{tiles.height} holds the whole frame of {width}×{height}"
                return "tiling", f"{text}: nothing would be tiled; make the tiles smaller, or give null"
        if tiles_of_time := self.temporal_tiles:
            if not family.temporal_tiling:
                return "temporal_tiles", "this family decodes in pieces of time of its own; give null"
            for name in ("frames", "stride"):
                if (value := getattr(tiles_of_time, name)) % time:
                    return f"temporal_tiles.{name}", f"{value} is no multiple of {time}, the VAE's stride"
            if tiles_of_time.stride > tiles_of_time.frames:
                text = f"{tiles_of_time.stride} would leave gaps between tiles of {tiles_of_time.frames} frames"
                return "temporal_tiles.stride", text
            if (frames - 1) // time + 1 <= tiles_of_time.frames // time:
                text = f"one tile of {tiles_of_time.frames} frames holds the whole video of {frames}"
                return "temporal_tiles", f"{text}: nothing would be tiled; make the tiles shorter, or give null"
        return None
