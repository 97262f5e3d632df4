"""Images of a conversation: decoded within limits, made ready for the tower, and put where the template has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from day0.runtime.vision.images import ImageLimits, decode_data_url, load_images
from day0.runtime.vision.preprocess import ImageInput, preprocess_image
from day0.runtime.vision.preprocess_config import ImagePreprocessing
from day0.runtime.vision.prompt import ExpandedPrompt, expand_placeholders


@dataclass(frozen=True, slots=True)
class Sight:
    """How the served model takes images. `placeholder` is the text of the token that stands for one."""

    preprocessing: ImagePreprocessing
    placeholder_id: int
    placeholder: str
    limits: ImageLimits = field(default_factory=ImageLimits)

    def prepare(self, urls: Sequence[str]) -> list[ImageInput]:
        """Images of data URLs, in order. InputError names the first that cannot be used; nothing is fetched."""
        files = []
        for index, url in enumerate(urls[: self.limits.max_images]):
            files.append(decode_data_url(url, self.limits, where=f"image {index}"))
        files += [b""] * (len(urls) - len(files))  # those past the limit are refused by their number
        return [preprocess_image(image, self.preprocessing) for image in load_images(files, self.limits)]

    def expand(self, ids: Sequence[int], images: Sequence[ImageInput]) -> ExpandedPrompt:
        """The prompt with as many placeholders as each image has tokens; InputError unless there is one per image."""
        return expand_placeholders(ids, [image.num_tokens for image in images], self.placeholder_id)


def takes_parts(template: str) -> bool:
    """Whether a chat template takes messages as lists of parts and writes the placeholders of images itself."""
    return "image" in template and "type" in template
