// The document of codemode.spec: every $ref is replaced, when a script looks at
// its place, by a copy of what it leads to. Made when a script first asks.
//
// A reference that leads back to itself on the way becomes {$circular: ref}; one
// that leads out of the document stays; one that leads nowhere is undefined. What
// a place becomes depends on the way to it alone, not on what was looked at before.
(function () {
  'use strict';
  // In these, names are keys and what they have are objects of the document.
  const maps = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas', 'schemas', 'parameters', 'responses', 'headers', 'examples', 'requestBodies', 'securitySchemes', 'links', 'callbacks', 'pathItems', 'paths', 'webhooks', 'content', 'encoding', 'variables', 'x-refs', 'securityDefinitions']);
  // In these there is data, in which a $ref means nothing.
  const data = new Set(['example', 'default', 'enum', 'const', 'value', 'x-portal']);
  const isObject = v => v !== null && typeof v === 'object' && !Array.isArray(v);
  const copy = v => Array.isArray(v) ? v.map(copy) : isObject(v) ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, copy(x)])) : v;

  return function spec(doc) {
    let left = 10000; // objects behind references; beyond that references stay, so that writing all of it out ends
    const cut = doc['x-portal']?.cut === true, index = doc['x-portal']?.view === 'index';

    function find(ref) {
      if (doc['x-refs'] !== undefined && Object.hasOwn(doc['x-refs'], ref)) return doc['x-refs'][ref];
      let at = doc;
      for (let part of ref.slice(2).split('/')) {
        try { part = decodeURIComponent(part); } catch { /* as it is */ }
        part = part.replaceAll('~1', '/').replaceAll('~0', '~');
        if (at === null || typeof at !== 'object' || !Object.hasOwn(at, part)) return undefined;
        at = at[part];
      }
      return at;
    }

    // chain: the references on the way. named: keys of v are names, not keywords.
    function node(v, chain, named) {
      if (Array.isArray(v)) return v.map(x => node(x, chain, false) ?? null);
      if (!isObject(v)) return v;
      if (!named && typeof v.$ref === 'string') {
        const ref = v.$ref;
        if (!ref.startsWith('#/') || left <= 0) return copy(v);
        for (let c = chain; c; c = c.before) if (c.ref === ref) return { $circular: ref };
        const target = find(ref);
        if (target === undefined) return cut ? copy(v) : undefined;
        const out = node(target, { ref, before: chain }, false), { $ref, ...beside } = v;
        if (isObject(out)) for (const k of Object.keys(beside)) put(out, k, beside[k], chain, false);
        return out;
      }
      if (chain) left--; // the document's own are as many as they are
      const out = {};
      for (const k of Object.keys(v)) put(out, k, v[k], chain, named);
      return out;
    }

    function put(out, key, v, chain, named) {
      const plain = value => Object.defineProperty(out, key, { value, writable: true, enumerable: true, configurable: true });
      if (v === null || typeof v !== 'object') return void plain(v);
      if (!named && (data.has(key) || key === 'examples' && Array.isArray(v))) return void plain(copy(v));
      if (isObject(v) && typeof v.$ref === 'string' && v.$ref.startsWith('#/') && !maps.has(key) && !cut && find(v.$ref) === undefined) return;
      Object.defineProperty(out, key, {
        enumerable: true, configurable: true,
        get() { const value = node(v, chain, !named && maps.has(key) && isObject(v)); plain(value); return value; },
        set: plain,
      });
    }

    const out = node(doc, null, false);
    if (index) {
      for (const item of Object.values(out.paths)) for (const [method, op] of Object.entries(item)) for (const k of ['parameters', 'requestBody', 'responses', 'description']) {
        Object.defineProperty(op, k, { enumerable: false, configurable: true, get() { throw new TypeError('the document is large, and this is its index: it has no ' + k + ' of operations. Ask for those you need: await codemode.spec(server, {paths: "/zones/*"}), {tags: "…"}, {operations: ["…"]} or {search: "words"}'); } });
      }
    }
    return out;
  };
})
