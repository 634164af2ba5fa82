// Runs named checks one by one and prints one JSON object: each name with what went wrong, null for nothing.

const checks = [];

export function check(name, run) {
  checks.push([name, run]);
}

export async function report() {
  const results = {};
  for (const [name, run] of checks) {
    try {
      await run();
      results[name] = null;
    } catch (error) {
      results[name] = String(error?.stack ?? error);
    }
  }
  console.log(JSON.stringify(results));
}

// What the model that answers by rule says to a question.
export function echo(question, system = "") {
  const told = system ? `As told (${system}): ` : "";
  return `${told}you asked  “${question}”.\n\n- naïve café\n- 日本語, 한국어 🚀 `;
}

export const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

export async function collected(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}
