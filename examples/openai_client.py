"""Lockgate through the official OpenAI client: plain, streamed, asynchronous, and with cache control.

pip install openai
python examples/openai_client.py [http://127.0.0.1:8080/v1]
"""

from __future__ import annotations

import asyncio
import sys

from openai import AsyncOpenAI, OpenAI

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
QUESTION = "Which planet is known as the red planet?"


def plain(client: OpenAI) -> None:
    """Twice the same question: the second answer comes from the cache."""
    for _ in range(2):
        raw = client.chat.completions.with_raw_response.create(
            model="auto", messages=[{"role": "user", "content": QUESTION}]
        )
        print(f"{raw.headers['x-lockgate-cache']:>12}  {raw.parse().choices[0].message.content}")


def streamed(client: OpenAI) -> None:
    """A hit streams like an answer that is being generated."""
    print("    streamed  ", end="")
    for chunk in client.chat.completions.create(
        model="auto", messages=[{"role": "user", "content": QUESTION}], stream=True
    ):
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
    print()


def fresh(client: OpenAI) -> None:
    """`no-cache` asks the model, and its answer replaces the one that was kept."""
    raw = client.chat.completions.with_raw_response.create(
        model="auto",
        messages=[{"role": "user", "content": QUESTION}],
        extra_headers={"cache-control": "no-cache"},
    )
    print(f"{raw.headers['x-lockgate-cache']:>12}  {raw.headers['x-lockgate-reason']}")


async def together() -> None:
    """Equal questions at the same time share one call."""
    async with AsyncOpenAI(base_url=BASE_URL, api_key="example") as client:

        async def ask() -> str:
            raw = await client.chat.completions.with_raw_response.create(
                model="auto", messages=[{"role": "user", "content": "Name a large river."}], max_tokens=40
            )
            return str(raw.headers["x-lockgate-cache"])

        print("    together ", sorted(await asyncio.gather(*(ask() for _ in range(4)))))


def main() -> None:
    with OpenAI(base_url=BASE_URL, api_key="example") as client:
        plain(client)
        streamed(client)
        fresh(client)
    asyncio.run(together())


if __name__ == "__main__":
    main()
