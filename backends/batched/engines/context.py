"""Does a job fit its context?"""

from __future__ import annotations

from backends.protocols import Failure, Job


def overflow(job: Job, prompt_tokens: int, context_tokens: int) -> Failure | None:
    """The refusal of a job that does not fit its context; None when it fits. A prompt needs room for one
    token of answer."""
    wanted = job.sampling.max_tokens or 1
    if prompt_tokens + wanted <= context_tokens:
        return None
    asked = job.sampling.max_tokens
    return Failure(
        job_id=job.id,
        kind="invalid",
        message=(
            f"This model's maximum context length is {context_tokens} tokens. However, you requested "
            f"{prompt_tokens + (asked or 0)} tokens ({prompt_tokens} in the messages, {asked or 0} in the "
            "completion). Please reduce the length of the messages or completion."
        ),
        param="messages" if prompt_tokens + 1 > context_tokens else "max_tokens",
    )
