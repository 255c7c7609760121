// What every client does: list tools, prompts and resources, make the calls.
export async function job(client, calls, callTool) {
  const all = async (list, member) => {
    const out = [];
    let cursor;
    do {
      const page = await list(cursor ? { cursor } : {});
      out.push(...page[member]);
      cursor = page.nextCursor;
    } while (cursor);
    return out;
  };
  const tools = (await all(p => client.listTools(p), 'tools')).map(t => t.name);
  const prompts = (await all(p => client.listPrompts(p), 'prompts')).map(p => p.name);
  const resources = (await all(p => client.listResources(p), 'resources')).map(r => r.uri);
  const results = [];
  for (const c of calls) {
    const r = await callTool({ name: c.name, arguments: c.arguments });
    results.push({ isError: !!r.isError, text: (r.content ?? []).map(b => b.text ?? `[${b.type}]`).join('\n') });
  }
  return { version: client.getNegotiatedProtocolVersion?.() ?? null, tools, prompts: prompts.length, resources: resources.length, results };
}
