"""The JSON of a conversation's turns, and how a chat template sees them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from day0.runtime.server.schema_tools import CallOfBefore, StrictModel


class ImageUrl(StrictModel):
    """`detail` changes nothing: an image is scaled as its model was published to."""

    url: str
    detail: Literal["auto", "low", "high"] | None = None


class ContentPart(BaseModel):
    """One part of a message; those of another kind than text are recognised in order to be refused by name."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: str
    text: str | None = None
    image_url: ImageUrl | None = None

    def for_template(self) -> dict[str, str]:
        return {"type": "image"} if self.image_url else {"type": "text", "text": self.text or ""}


class Message(StrictModel):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    refusal: str | None = None
    audio: dict[str, Any] | None = None
    tool_calls: list[CallOfBefore] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    def unsupported(self) -> str | None:
        for name in ("function_call", "audio"):
            if getattr(self, name):
                return name
        if isinstance(self.content, list):
            for index, part in enumerate(self.content):
                known = {"text": part.text, "image_url": part.image_url}
                if known.get(part.type) is None or sum(value is not None for value in known.values()) != 1:
                    return f"content[{index}].{part.type}"
        return None

    def image_urls(self) -> list[str]:
        return [part.image_url.url for part in self.content or () if isinstance(part, ContentPart) and part.image_url]

    def for_template(self, placeholder: str = "", *, in_parts: bool = False) -> dict[str, Any]:
        """What a chat template sees of it: text parts joined by line breaks, images as `placeholder` among them, or
        (`in_parts`) a message with images as the parts that it has."""
        content: Any = self.content
        if isinstance(content, list) and in_parts and self.image_urls():
            content = [part.for_template() for part in content]
        elif isinstance(content, list):
            content = "\n".join(placeholder if part.image_url else part.text or "" for part in content)
        seen: dict[str, Any] = {"role": self.role, "content": content or ""}
        reasoning = self.reasoning if self.reasoning_content is None else self.reasoning_content
        told = {"name": self.name, "reasoning_content": reasoning, "tool_call_id": self.tool_call_id}
        seen |= {name: value for name, value in told.items() if value is not None}
        if self.tool_calls:
            seen["tool_calls"] = [call.for_template() for call in self.tool_calls]
        return seen
