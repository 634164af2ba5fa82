// OpenAI's client for Node. Arguments: the gateway's URL with /v1.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";

import OpenAI, { toFile } from "openai";

import { check, collected, echo, PIXEL, report } from "./checks.mjs";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "sk-node", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const weather = {
  type: "function",
  function: {
    name: "weather",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
};
const textOf = (chunks) => chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join("");

check("a question misses and then hits", async () => {
  for (const cache of ["miss", "hit-exact"]) {
    const { data, response, request_id } = await client.chat.completions
      .create({ model: "gpt", messages: [{ role: "system", content: "Be brief." }, ...user("What is Node?")] })
      .withResponse();
    assert.equal(response.headers.get("x-lockgate-cache"), cache);
    assert.equal(data.choices[0].message.content, echo("What is Node?", "Be brief."));
    assert.equal(data.usage.total_tokens, 27);
    assert.ok(request_id);
    assert.equal(data._request_id, request_id);
  }
});

for (const model of ["gpt", "plain", "claude"]) {
  check(`a stream has its text, and usage only when asked: ${model}`, async () => {
    for (const usage of [true, false]) {
      for (const cache of ["miss", "hit-exact"]) {
        const asked = { model, messages: user(`Streamed, usage ${usage}?`), stream: true };
        if (usage) asked.stream_options = { include_usage: true };
        const { data, response } = await client.chat.completions.create(asked).withResponse();
        assert.equal(response.headers.get("x-lockgate-cache"), cache);
        const chunks = await collected(data);
        assert.equal(textOf(chunks), echo(`Streamed, usage ${usage}?`));
        const told = chunks.filter((chunk) => chunk.usage).map((chunk) => chunk.usage.total_tokens);
        assert.deepEqual(told, usage ? [27] : []);
      }
    }
  });

  check(`the helper runs parallel tools and sends back their results: ${model}`, async () => {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model,
      messages: user("What is the weather in Paris and Rome?"),
      stream: true,
      tools: [
        {
          type: "function",
          function: {
            ...weather.function,
            parse: JSON.parse,
            function: async ({ city }) => {
              asked.push(city);
              return `fine in ${city}`;
            },
          },
        },
      ],
    });
    assert.equal(await runner.finalContent(), "call_paris says fine in Paris; call_rome says fine in Rome");
    assert.deepEqual(asked, ["Paris", "Rome"]);
  });

  check(`responses are created and streamed: ${model}`, async () => {
    const whole = await client.responses.create({ model, input: "Respond, Node?" });
    assert.equal(whole.output_text, echo("Respond, Node?"));
    const stream = client.responses.stream({ model, input: "Respond in a stream, Node?" });
    const events = await collected(stream);
    const told = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
    assert.equal(told.join(""), echo("Respond in a stream, Node?"));
    assert.equal((await stream.finalResponse()).output_text, told.join(""));
  });
}

check("tool calls stream and add up", async () => {
  for (const _ of ["miss", "hit-exact"]) {
    const stream = client.chat.completions.stream({
      model: "gpt",
      messages: user("The weather in Rome and Seoul?"),
      tools: [weather],
    });
    const { message } = (await stream.finalChatCompletion()).choices[0];
    const cities = message.tool_calls.map((call) => JSON.parse(call.function.arguments).city);
    assert.deepEqual(cities, ["Rome", "Seoul"]);
  }
});

check("an image reaches the model", async () => {
  const url = `data:image/png;base64,${PIXEL}`;
  const answer = await client.chat.completions.create({
    model: "gpt",
    messages: user([
      { type: "text", text: "What is this?" },
      { type: "image_url", image_url: { url } },
    ]),
  });
  assert.equal(answer.choices[0].message.content, `I see image/png of ${atob(PIXEL).length} bytes.`);
});

check("JSON is asked for", async () => {
  const answer = await client.chat.completions.create({
    model: "gpt",
    messages: user("JSON, Node?"),
    response_format: { type: "json_object" },
  });
  assert.equal(JSON.parse(answer.choices[0].message.content).city, "Zürich");
});

check("embeddings are the same in either format", async () => {
  const asked = { model: "gpt", input: ["one", "three"] };
  const byDefault = await client.embeddings.create(asked);
  const floats = await client.embeddings.create({ ...asked, encoding_format: "float" });
  assert.equal(byDefault.data[0].embedding.length, 8);
  for (const row of [0, 1]) {
    byDefault.data[row].embedding.forEach((value, i) => {
      assert.ok(Math.abs(value - floats.data[row].embedding[i]) < 1e-6);
    });
  }
});

check("completions stream", async () => {
  const chunks = await collected(await client.completions.create({ model: "gpt", prompt: "Once", stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), echo("Once"));
});

check("models are listed and retrieved", async () => {
  const names = (await collected(client.models.list())).map((model) => model.id);
  assert.ok(names.includes("auto") && names.includes("listed-upstream"));
  assert.equal((await client.models.retrieve("gpt")).id, "gpt");
});

check("errors have their classes", async () => {
  const classes = [
    [400, OpenAI.BadRequestError],
    [401, OpenAI.AuthenticationError],
    [404, OpenAI.NotFoundError],
    [429, OpenAI.RateLimitError],
    [500, OpenAI.InternalServerError],
  ];
  for (const [status, kind] of classes) {
    for (const stream of [false, true]) {
      const asking = client.chat.completions.create({ model: `gpt-fails-${status}`, messages: user("?"), stream });
      await assert.rejects(asking, (error) => {
        assert.ok(error instanceof kind);
        assert.match(error.message, new RegExp(`The model says ${status}`));
        assert.ok(error.requestID);
        return true;
      });
    }
  }
});

check("a stream that breaks off throws", async () => {
  const stream = await client.chat.completions.create({ model: "gpt-dies", messages: user("Cut?"), stream: true });
  await assert.rejects(collected(stream), OpenAI.APIError);
});

check("a file comes back byte for byte", async () => {
  const content = randomBytes(200_000);
  const made = await client.files.create({ file: await toFile(content, "node.bin"), purpose: "batch" });
  assert.equal(made.bytes, content.length);
  const told = Buffer.from(await (await client.files.content(made.id)).arrayBuffer());
  assert.ok(told.equals(content));
});

check("a stream is left", async () => {
  const stream = await client.chat.completions.create({ model: "gpt-hangs", messages: user("Left?"), stream: true });
  for await (const _ of stream) break;
});

await report();
