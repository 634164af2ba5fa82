// Anthropic's client for Node. Arguments: the gateway's URL without /v1.

import assert from "node:assert/strict";

import Anthropic from "@anthropic-ai/sdk";

import { check, collected, echo, PIXEL, report } from "./checks.mjs";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "sk-ant-node", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const weather = {
  name: "weather",
  input_schema: { type: "object", properties: { city: { type: "string" } } },
};

for (const model of ["claude", "gpt"]) {
  check(`a question misses and then hits: ${model}`, async () => {
    for (const cache of ["miss", "hit-exact"]) {
      const { data, response, request_id } = await client.messages
        .create({ model, max_tokens: 300, system: "Be brief.", messages: user("What is Node?") })
        .withResponse();
      assert.equal(response.headers.get("x-lockgate-cache"), cache);
      assert.deepEqual(data.content, [{ type: "text", text: echo("What is Node?", "Be brief.") }]);
      assert.equal(data.usage.output_tokens, 7);
      assert.ok(request_id);
    }
  });

  check(`a stream has its text and usage: ${model}`, async () => {
    for (const _ of ["miss", "hit-exact"]) {
      const stream = client.messages.stream({ model, max_tokens: 300, messages: user("Streamed, Node?") });
      let told = "";
      stream.on("text", (text) => (told += text));
      const final = await stream.finalMessage();
      assert.equal(told, echo("Streamed, Node?"));
      assert.equal(final.content[0].text, told);
      assert.deepEqual([final.usage.input_tokens, final.usage.output_tokens], [15, 7]);
    }
  });

  check(`parallel tools and their results: ${model}`, async () => {
    const messages = user("What is the weather in Paris and Rome?");
    for (const _ of ["miss", "hit-exact"]) {
      const stream = client.messages.stream({ model, max_tokens: 300, messages, tools: [weather] });
      const answer = await stream.finalMessage();
      assert.equal(answer.stop_reason, "tool_use");
      assert.deepEqual(
        answer.content.map((block) => block.input.city),
        ["Paris", "Rome"],
      );
      const results = answer.content.map((block) => ({
        type: "tool_result",
        tool_use_id: block.id,
        content: "fine",
      }));
      const told = await client.messages.create({
        model,
        max_tokens: 300,
        tools: [weather],
        messages: [...messages, { role: "assistant", content: answer.content }, ...user(results)],
      });
      assert.equal(told.content[0].text, "call_paris says fine; call_rome says fine");
    }
  });

  check(`thinking comes before the text: ${model}`, async () => {
    for (const _ of ["miss", "hit-exact"]) {
      const stream = client.messages.stream({
        model,
        max_tokens: 2000,
        messages: user("Why, Node?"),
        thinking: { type: "enabled", budget_tokens: 1024 },
      });
      const { content } = await stream.finalMessage();
      assert.deepEqual(
        content.map((block) => block.type),
        ["thinking", "text"],
      );
      assert.equal(content[0].thinking, "Which city?\nLet me think — 생각 중.");
    }
  });

  check(`an image reaches the model: ${model}`, async () => {
    const answer = await client.messages.create({
      model,
      max_tokens: 300,
      messages: user([
        { type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL } },
        { type: "text", text: "What is this?" },
      ]),
    });
    assert.equal(answer.content[0].text, `I see image/png of ${atob(PIXEL).length} bytes.`);
  });

  check(`errors have their classes: ${model}`, async () => {
    const classes = [
      [400, Anthropic.BadRequestError],
      [401, Anthropic.AuthenticationError],
      [404, Anthropic.NotFoundError],
      [429, Anthropic.RateLimitError],
      [500, Anthropic.InternalServerError],
    ];
    for (const [status, kind] of classes) {
      for (const stream of [false, true]) {
        const asking = client.messages.create({
          model: `${model}-fails-${status}`,
          max_tokens: 300,
          messages: user("?"),
          stream,
        });
        await assert.rejects(asking, (error) => {
          assert.ok(error instanceof kind);
          assert.match(error.message, new RegExp(`The model says ${status}`));
          assert.ok(error.requestID);
          return true;
        });
      }
    }
  });

  check(`a stream that breaks off throws: ${model}`, async () => {
    const stream = await client.messages.create({
      model: `${model}-dies`,
      max_tokens: 300,
      messages: user("Cut?"),
      stream: true,
    });
    await assert.rejects(collected(stream), Anthropic.APIError);
  });
}

check("tokens are counted", async () => {
  const counted = await client.messages.countTokens({ model: "claude", messages: user("How many?") });
  assert.equal(counted.input_tokens, 1234);
});

check("models are listed", async () => {
  const models = await collected(client.models.list());
  assert.ok(models.some((model) => model.id === "claude" && model.type === "model"));
});

check("a stream is left", async () => {
  const stream = await client.messages.create({
    model: "claude-hangs",
    max_tokens: 300,
    messages: user("Left?"),
    stream: true,
  });
  for await (const _ of stream) break;
});

await report();
