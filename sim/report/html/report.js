// Draws the results in #results: text and tables as elements, charts with Chart.js. Text enters the page as text only.
'use strict';
(() => {
  const results = JSON.parse(document.getElementById('results').textContent);
  const main = document.querySelector('main');
  const charts = [];
  const kMostRows = 60;  // of the table of a chart

  // --- elements ------------------------------------------------------------------------------------------------
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined) node.append(child);
    }
    return node;
  };
  const isNumber = (x) => typeof x === 'number' && Number.isFinite(x);
  /// A number for people; "-" where there is none, which is not 0.
  const figure = (x) => {
    if (typeof x === 'string') return x;
    if (!isNumber(x)) return '-';
    const size = Math.abs(x);
    if (size >= 1e15 || (size > 0 && size < 1e-4)) return x.toExponential(2);
    if (Number.isInteger(x) || size >= 10000) return Math.round(x).toLocaleString('en-GB');
    if (size >= 100) return x.toFixed(1);
    return String(Number(x.toPrecision(4)));
  };
  const percent = (x) => (isNumber(x) ? `${(100 * x).toFixed(1)}%` : '-');
  const signed = (x) => (isNumber(x) ? `${x > 0 ? '+' : ''}${(100 * x).toFixed(1)}%` : '-');
  const list = (items) => el('ul', {}, items.map((one) => el('li', {}, one)));
  const terms = (pairs) => el('dl', {}, pairs.filter(([, text]) => text !== undefined && text !== null && text !== '')
      .map(([term, text]) => [el('dt', {}, term), el('dd', {}, String(text))]));
  /// The first cell of a row heads it. Cells that are elements are taken as they are.
  const table = (caption, heads, rows, textColumns = []) => {
    const cell = (value, i) => {
      if (value instanceof Node) return value;
      if (i === 0) return el('th', {scope: 'row'}, figure(value));
      return el('td', textColumns.includes(i) ? {class: 'text'} : {}, figure(value));
    };
    return el('div', {class: 'scroll', role: 'region', 'aria-label': caption, tabindex: '0'},
        el('table', {}, el('caption', {}, caption),
            el('thead', {}, el('tr', {}, heads.map((head, i) =>
              el('th', {scope: 'col', ...(textColumns.includes(i) ? {class: 'text'} : {})}, head)))),
            el('tbody', {}, rows.map((row) => el('tr', {}, row.map(cell))))));
  };
  const thinned = (rows) => {
    if (rows.length <= kMostRows) return rows;
    const step = Math.ceil(rows.length / kMostRows);
    return rows.filter((_, i) => i % step === 0 || i === rows.length - 1);
  };

  // --- charts --------------------------------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const kDashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
  const kMarks = ['circle', 'rect', 'triangle', 'rectRot', 'crossRot', 'star'];
  const axis = (spec, title, values) => {
    const positive = values.length > 0 && values.every((v) => v > 0);
    const ratio = positive ? values.reduce((a, b) => Math.max(a, b)) / values.reduce((a, b) => Math.min(a, b)) : 1;
    const log = spec === 'log' && ratio > 20;
    // Powers of ten, and between them 2 and 5 where there is room.
    const isShown = (v) => (ratio < 60 ? ['1', '2', '5'] : ['1']).includes(v.toExponential().split('e')[0]);
    return {
      type: log ? 'logarithmic' : 'linear',
      title: {display: true, text: title, color: colour('--ink')},
      ticks: {color: colour('--soft'), maxTicksLimit: log ? 60 : 7, maxRotation: 0, autoSkip: !log,
        callback: (v) => (!log || isShown(v) ? figure(v) : '')},
      grid: {color: colour('--rule')}, beginAtZero: !log && spec !== 'free',
    };
  };
  const configuration = (spec) => {
    const sets = spec.series.map((one, i) => ({
      label: one.name, data: one.points.map(([x, y]) => (spec.labels ? y : {x, y})),
      borderColor: colour(`--c${i % 8}`), backgroundColor: colour(`--c${i % 8}`), borderWidth: spec.labels ? 0 : 2,
      borderDash: kDashes[Math.floor(i / 2) % 4], pointStyle: kMarks[i % 6],
      pointRadius: !one.plain && (one.dots || one.points.length <= 30) ? 3.5 : 0, pointHitRadius: 6,
      showLine: !one.dots, stepped: one.stepped ? 'before' : false, spanGaps: false,
    }));
    const all = spec.series.flatMap((one) => one.points);
    const ys = all.map(([, y]) => y).filter(isNumber);
    const x = spec.labels
      ? {type: 'category', labels: spec.labels, ticks: {color: colour('--soft'), autoSkip: false, maxRotation: 60},
        grid: {display: false}, title: {display: !!spec.x, text: spec.x, color: colour('--ink')}}
      : axis(spec.xAxis, spec.x, all.map(([one]) => one));
    return {
      type: spec.labels ? 'bar' : 'scatter', data: {labels: spec.labels, datasets: sets},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
        interaction: {mode: 'nearest', intersect: false},
        scales: {x, y: {...axis(spec.yAxis, spec.y, ys), ...(spec.yMax ? {max: spec.yMax} : {})}},
        plugins: {
          legend: {display: spec.series.length > 1, labels: {color: colour('--ink'), usePointStyle: true, boxWidth: 7, boxHeight: 7}},
          tooltip: {callbacks: {label: (item) => {
            const name = item.dataset.label;
            return spec.labels ? `${name}: ${figure(item.parsed.y)}`
              : `${name}: ${figure(item.parsed.y)} at ${figure(item.parsed.x)}`;
          }}},
        },
      },
    };
  };
  const draw = () => {
    for (const one of charts) {
      if (one.chart) one.chart.destroy();
      one.chart = new Chart(one.canvas, configuration(one.spec));
    }
  };
  /// A chart with its table beneath; without points, the reason.
  const chart = (spec) => {
    const series = spec.series.map((one) => ({...one, points: one.points.filter(([, y]) => spec.labels || isNumber(y))}));
    const shows = ([, y]) => isNumber(y) && !(spec.zeroIsNone && y === 0);
    const points = series.reduce((sum, one) => sum + one.points.filter(shows).length, 0);
    const node = el('figure', {}, el('h3', {}, spec.title));
    if (points === 0) {
      node.append(el('p', {class: 'none'}, `No data: ${spec.none || 'no such value in this result'}.`));
      return node;
    }
    const canvas = el('canvas', {role: 'img', 'aria-label': `${spec.title}. ${spec.description || ''}`});
    node.append(el('div', {class: 'canvas'}, canvas));
    if (spec.description) node.append(el('figcaption', {}, spec.description));
    const [caption, heads, rows] = spec.table || pointTable(spec, series);
    const shown = thinned(rows);
    const note = shown.length < rows.length ? ` ${shown.length} of ${rows.length} rows.` : '';
    const details = el('details', {}, el('summary', {}, `Table: ${spec.title}`), table(caption + note, heads, shown));
    if (shown.length <= 8) details.open = true;
    node.append(details);
    charts.push({canvas, spec: {...spec, series}});
    return node;
  };
  const pointTable = (spec, series) => {
    const caption = `${spec.y} by ${spec.x || 'name'}.`;
    if (spec.labels) {
      return [caption, [spec.x || '', ...series.map((one) => one.name)],
        spec.labels.map((label, i) => [label, ...series.map((one) => (one.points[i] || [])[1])])];
    }
    const xs = [...new Set(series.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
    const maps = series.map((one) => new Map(one.points));
    return [caption, [spec.x, ...series.map((one) => one.name)], xs.map((x) => [x, ...maps.map((map) => map.get(x))])];
  };
  const grid = (...figures) => el('div', {class: 'charts'}, figures);

  const value = (metrics, name) => (metrics && metrics[name] ? metrics[name].value : null);
  const kLatencies = [['ttft_ms', 'TTFT'], ['tpot_ms', 'TPOT'], ['itl_ms', 'ITL'], ['e2e_ms', 'E2E']];

  // --- one run -------------------------------------------------------------------------------------------------
  const latencyTable = (metrics) => {
    const columns = ['mean', 'p50', 'p90', 'p95', 'p99', 'max'];
    return table('Latency in ms. "-": no request has it.', ['', ...columns, 'n'], kLatencies.map(([key, label]) =>
      [label, ...columns.map((one) => value(metrics, `${one}_${key}`)), (metrics[`mean_${key}`] || {}).n]));
  };
  const kThroughput = ['request_throughput_per_s', 'goodput_requests_per_s', 'output_throughput_tokens_per_s',
    'total_throughput_tokens_per_s', 'mean_batch_requests', 'peak_batch_requests', 'mean_waiting_requests',
    'peak_waiting_requests', 'mean_gpu_kv_fraction', 'peak_gpu_kv_fraction', 'recompute_preemptions',
    'swap_preemptions', 'gpu_busy_fraction'];
  const metricTable = (metrics, names) => table('Throughput, memory and load.', ['Metric', 'value', 'unit', '95% ±'],
      names.filter((name) => metrics[name]).map((name) =>
        [name, metrics[name].value, metrics[name].unit, metrics[name].half_width]));
  const cdfs = (curves) => kLatencies.map(([key, label]) => {
    const curve = (curves || []).find((one) => one.metric === key);
    const points = curve ? curve.points.map(([share, ms]) => [ms, share]) : [];
    return chart({title: `Distribution of ${label}`, x: `${label} (ms)`, y: 'Share (%)', xAxis: 'log', yMax: 100,
      description: key === 'itl_ms' ? 'Percentage of the gaps between tokens that are at most this long.'
        : `Percentage of the finished requests whose ${label} is at most this long.`,
      series: [{name: label, points}], none: 'no request finished, so there is no latency',
      table: [`${label} by percentile.`, ['Percentile', 'ms'],
        (curve ? curve.points : []).filter(([p]) => [1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9].includes(p))]});
  });
  const kStreams = [['h2d', 'host to GPU'], ['d2h', 'GPU to host'], ['peer_in', 'other GPUs to GPU'],
    ['peer_out', 'GPU to other GPUs'], ['cpu', 'CPU']];
  const kWaits = [['weights', 'weights'], ['layers', 'layers'], ['kv', 'KV of requests'],
    ['cpu_attention', 'attention on the CPU'], ['queries', 'queries'], ['outputs', 'outputs'], ['experts', 'experts']];
  const overTime = (charted) => {
    const {series} = charted;
    const at = (bin) => (bin + 0.5) * series.width_s;
    const line = (values, name) => ({name, points: (values || []).map((y, bin) => [at(bin), y])});
    const some = (one) => one.points.some(([, y]) => y > 0);
    return series.instances.map((instance) => {
      const of = (column) => instance.columns[column];
      const tiers = Object.keys(instance.columns).filter((one) => one.endsWith('_kv_fraction') &&
        !one.startsWith('waits_for_') && of(one).some((y) => y !== null));
      const waits = kWaits.map(([key, name]) => line(of(`waits_for_${key}_fraction`), name)).filter(some);
      const links = kStreams.map(([key, name]) => line(of(`${key}_busy_fraction`), name)).filter(some);
      const copied = kStreams.slice(0, 4).map(([key, name]) => line((of(`${key}_bytes_per_s`) || [])
          .map((y) => y / 1e9), name)).filter(some);
      // A link can be busy while the GPU waits for another one, so hidden time is a lower limit.
      const busiest = series.instances.length && of('h2d_busy_fraction').map((_, bin) =>
        Math.max(...kStreams.map(([key]) => of(`${key}_busy_fraction`)[bin])));
      const exposed = busiest.map((_, bin) => kWaits.reduce((sum, [key]) => sum + of(`waits_for_${key}_fraction`)[bin], 0));
      const hidden = busiest.map((y, bin) => Math.max(0, y - exposed[bin]));
      const time = {x: 'Time (s)'};
      return [
        el('h3', {}, instance.name),
        grid(
            chart({...time, title: 'Queue and batch', y: 'Requests', series: [
              line(of('running_requests'), 'running'), line(of('waiting_requests'), 'waiting')],
            description: 'Requests in the batch, and requests that wait.'}),
            chart({...time, title: 'KV in use', y: 'Share of the blocks', yMax: 1, series: tiers.map((one) =>
              line(of(one), one.replace('_kv_fraction', '').replace('_', ' '))),
            description: 'By tier: share of its KV blocks in use.'}),
            chart({...time, title: 'Tokens', y: 'Tokens per second', series: [
              line(of('prefill_tokens_per_s'), 'prefill'), line(of('decode_tokens_per_s'), 'decode')],
            description: 'Tokens of prompts and decoded tokens that iterations compute.'}),
            chart({...time, title: 'Links in use', y: 'Share of the time', yMax: 1, series: links,
              none: 'nothing was copied', description: 'Share of the time with a copy under way, launches included. ' +
                'CPU: share of the time in which the CPU computes attention or experts.'}),
            chart({...time, title: 'Bytes on links', y: 'GB/s', series: copied, none: 'nothing was copied'}),
            chart({...time, title: 'Copies hidden and exposed', y: 'Share of the time', yMax: 1,
              series: some(line(busiest, '')) ? [line(exposed, 'exposed: the GPU waits'), line(hidden, 'hidden')] : [],
              none: 'nothing was copied', description: 'Exposed: the GPU waits for a copy or the CPU. Hidden: the rest ' +
                'of the time in which the busiest link, or the CPU, is busy.'}),
            chart({...time, title: 'Waits of the GPU by cause', y: 'Share of the time', series: waits,
              none: 'the GPU never waited for a copy or the CPU'})),
      ];
    }).flat();
  };
  const timeBars = (metrics) => {
    const names = Object.keys(metrics).filter((one) => one.endsWith('_time_fraction'));
    const label = (one) => one.replace('_time_fraction', '').replaceAll('_', ' ');
    const copies = ['hidden_kv_copy_s', 'exposed_kv_copy_s', 'idle_kv_copy_s'];
    return grid(
        chart({title: 'Where the time went', labels: names.map(label), y: 'Share of the time',
          series: [{name: 'share', points: names.map((one, i) => [i, value(metrics, one)])}],
          none: 'nothing was measured', description: 'Shares of the measured span, by the resource that limits.'}),
        chart({title: 'KV copies of requests', labels: ['hidden', 'exposed', 'while nothing ran'], y: 'Seconds',
          series: [{name: 'time', points: copies.map((one, i) => [i, value(metrics, one)])}],
          zeroIsNone: true, none: 'no KV of requests was copied',
          description: 'Time in which KV of requests was copied: beside iterations, while one waited for it, and ' +
            'between iterations.'}));
  };
  /// Figures with the locality that each row assumes, and with half and twice of it, if there are any. A row is {label,
  /// metrics, expert_locality, other_localities}; rows whose policy places no experts have neither of the last two.
  const localities = (rows, which = '') => {
    const assumed = (one) => {
      if (one === undefined) return 'each its own';
      return typeof one === 'object' ? `${one.value} (${one.origin})` : one;
    };
    const lines = rows.filter((one) => one.other_localities).flatMap((row) => {
      const other = row.other_localities;
      return [[row.label, assumed(row.expert_locality), value(row.metrics, 'output_throughput_tokens_per_s'),
        value(row.metrics, 'p50_tpot_ms')],
      ...(other.runs || []).map((run) => [row.label, run.value ?? (run.times < 1 ? 'half of each' : 'twice of each'),
        run.output_throughput_tokens_per_s, run.p50_tpot_ms]),
      ...(other.not_run ? [[row.label, `not halved and doubled: ${other.not_run}`, null, null]] : [])];
    });
    return lines.length === 0 ? null : [el('h3', {}, 'Locality of experts'),
      table(`The locality that was assumed, and half and twice of it, at most 1${which}.`, ['Configuration',
        'experts.locality', 'output tokens/s', 'p50 TPOT ms'], lines, [1])];
  };
  /// What instances of several kinds assume: "chat 0.4 (default), code 0.6 (given)".
  const assumedByInstances = (instances) => (instances || []).filter((one) => one.setup.expert_locality).map((one) =>
    `${one.name} ${one.setup.expert_locality.value} (${one.setup.expert_locality.origin})`).join(', ') || undefined;
  const notes = (warnings, validity) => [
    el('h3', {}, 'Warnings'), warnings && warnings.length ? list(warnings) : el('p', {class: 'none'}, 'None.'),
    el('h3', {}, 'Validity'), validity && validity.length
      ? list(validity.map((one) => (typeof one === 'string' ? one : `${one.role}: ${one.stands_for}. ${one.error}`)))
      : el('p', {class: 'none'}, 'No input states an error.')];
  const run = (r) => {
    const s = r.setup;
    const assumed = s.expert_locality || assumedByInstances(r.instances);
    const counts = r.conservation ? r.conservation.all : {};
    const slo = r.slo ? [...r.slo.per_request, ...r.slo.run.map((one) =>
      `${one.condition}: ${one.met ? 'met' : 'not met'} (${figure(one.value)})`)] : [];
    return [
      el('h2', {}, `${s.model} on ${s.tensor_parallel_gpus ? `${s.tensor_parallel_gpus} x ` : ''}${s.gpu}, ${s.policy}`),
      r.complete === false ? el('p', {class: 'lead'}, 'INCOMPLETE: the run was interrupted.') : null,
      r.bottleneck ? [el('p', {class: 'lead'}, r.bottleneck.sentence), el('p', {}, r.bottleneck.advice)] : null,
      terms([['Workload', s.workload], ['Engine', s.engine], ['Hardware', s.hardware],
        ['Replicas', s.replicas], ['GPU KV', s.gpu_kv_tokens ? `${figure(s.gpu_kv_tokens)} tokens in ` +
          `${figure(s.gpu_kv_blocks)} blocks` : null],
        ['Requests', Object.entries(counts).filter(([, n]) => n > 0).map(([name, n]) =>
          `${figure(n)} ${name.replace('_', ' ')}`).join(', ')],
        ['Locality', r.other_localities || assumed === undefined ? null
          : typeof assumed === 'object' ? `${assumed.value} (${assumed.origin})` : assumed],
        ['Steady', r.steady_state ? `${r.steady_state.verdict}. ${r.steady_state.reason || ''}` : null],
        ['SLO', slo.join('; ')]]),
      el('h3', {}, 'Latency'), latencyTable(r.metrics),
      r.charts ? grid(...cdfs(r.charts.latency)) : null,
      el('h3', {}, 'Throughput and memory'), metricTable(r.metrics, kThroughput),
      timeBars(r.metrics),
      localities([{label: s.policy, metrics: r.metrics, other_localities: r.other_localities, expert_locality: assumed}]),
      r.charts ? [el('h2', {}, 'Over time'),
        el('p', {class: 'none'}, `Means of ${figure(r.charts.series.width_s)} s` + (r.charts.replications > 1
          ? ', of the first replication.' : '.') + (r.charts.series.omitted_instances > 0
          ? ` ${r.charts.series.omitted_instances} more instances are in --series FILE.` : '')),
        overTime(r.charts)] : el('p', {class: 'none'},
          'This result has no distributions and no time series. Results of run with -o DIR or --html have them.'),
      notes(r.warnings, r.validity)];
  };

  // --- several configurations ----------------------------------------------------------------------------------
  const kGoodput = ['goodput_requests_per_s', 'Goodput (requests/s)'];
  const kCurves = [kGoodput, ['output_throughput_tokens_per_s', 'Output (tokens/s)'], ['p99_ttft_ms', 'p99 TTFT (ms)'],
    ['p99_tpot_ms', 'p99 TPOT (ms)']];
  const kShown = [['request_throughput_per_s', 'req/s'], ['goodput_requests_per_s', 'good req/s'],
    ['output_throughput_tokens_per_s', 'out tok/s'], ['mean_ttft_ms', 'mean TTFT ms'], ['p99_ttft_ms', 'p99 TTFT ms'],
    ['mean_tpot_ms', 'mean TPOT ms'], ['p99_tpot_ms', 'p99 TPOT ms'], ['p99_e2e_ms', 'p99 E2E ms']];
  const asNumber = (text) => {
    const number = typeof text === 'number' ? text : Number.parseFloat(text);
    return Number.isFinite(number) && (typeof text === 'number' || /^[0-9.eE+-]+\s*[A-Za-z/%]*$/.test(text)) ? number : null;
  };
  /// Points that no other one beats in both: more throughput and less latency.
  const front = (points) => points.filter(([x, y], i) => !points.some(([a, b], j) =>
    j !== i && a >= x && b <= y && (a > x || b < y))).sort((a, b) => a[0] - b[0]);
  const pareto = (rows, latency, label) => {
    const points = rows.map((row) => [value(row.metrics, 'output_throughput_tokens_per_s'), value(row.metrics, latency)])
        .filter(([x, y]) => isNumber(x) && isNumber(y));
    const best = front(points);
    const name = (x, y) => rows.filter((row) => value(row.metrics, 'output_throughput_tokens_per_s') === x &&
      value(row.metrics, latency) === y).map((row) => row.label).join('; ');
    return chart({title: `Throughput against ${label}`, x: 'Output (tokens/s)', y: `${label} (ms)`, xAxis: 'free',
      yAxis: 'log', series: [{name: 'Pareto front', points: best}, {name: 'all points', points, dots: true}],
      description: 'On the front, no other point has more throughput and less latency.',
      table: ['The Pareto front.', ['Configuration', 'tokens/s', 'ms'], best.map(([x, y]) => [name(x, y), x, y])]});
  };
  const heat = (rows, keys, metric, label) => {
    const names = keys.map((key) => [...new Set(rows.map((row) => String(row.values[key])))]);
    const cells = new Map();
    for (const row of rows) {
      const number = value(row.metrics, metric);
      if (isNumber(number)) {
        const id = `${row.values[keys[0]]}\n${row.values[keys[1]]}`;
        cells.set(id, [...(cells.get(id) || []), number]);
      }
    }
    const means = new Map([...cells].map(([id, all]) => [id, all.reduce((a, b) => a + b, 0) / all.length]));
    const low = Math.min(...means.values());
    const high = Math.max(...means.values());
    const scale = (x) => (low > 0 && high > 20 * low ? Math.log(x / low) / Math.log(high / low)
      : (x - low) / (high - low || 1));
    const cell = (x) => {
      const node = el('td', {class: 'heat'}, figure(x));
      if (!isNumber(x)) return el('td', {}, '-');
      node.style.backgroundColor = `hsl(${205 - 170 * scale(x)} 75% ${82 - 16 * scale(x)}%)`;
      return node;
    };
    const rest = Object.keys(rows[0].values).length > 2 ? ', means over all other keys' : '';
    return el('figure', {}, el('h3', {}, `${label} by ${keys[0]} and ${keys[1]}`),
        table(`${label}${rest}: blue is the lowest, red the highest.`, [`${keys[0]} \\ ${keys[1]}`, ...names[1]],
            names[0].map((a) => [a, ...names[1].map((b) => cell(means.get(`${a}\n${b}`)))])));
  };
  const rowsTable = (caption, rows) => {
    const shown = kShown.filter(([key]) => rows.some((row) => isNumber(value(row.metrics, key))));
    return table(caption, ['Configuration', ...shown.map(([, head]) => head), 'limited by'],
        rows.map((row) => [row.label, ...shown.map(([key]) => value(row.metrics, key)), row.bottleneck || '-']),
        [shown.length + 1]);
  };
  const sweep = (r) => {
    const keys = r.axes.flatMap((one) => one.keys);
    const varied = keys.filter((key) => new Set(r.points.map((row) => String(row.values[key]))).size > 1);
    const rows = r.points.map((row) => ({...row, metrics: row.metrics || {},
      label: (varied.length ? varied : keys).map((key) => `${key}=${row.values[key]}`).join(' ')}));
    const numeric = varied.filter((key) => rows.every((row) => asNumber(row.values[key]) !== null));
    const x = numeric.includes('workload.rate') ? 'workload.rate' : numeric[0];
    const curves = kCurves.filter(([key]) => rows.some((row) => isNumber(value(row.metrics, key)))).map(([key, label]) => {
      const lines = new Map();
      for (const row of rows) {
        const name = varied.filter((one) => one !== x).map((one) => `${one}=${row.values[one]}`).join(' ') || label;
        lines.set(name, [...(lines.get(name) || []), [asNumber(row.values[x]), value(row.metrics, key)]]);
      }
      return chart({title: `${label} against ${x}`, x, y: label, xAxis: 'free', yAxis: key.includes('ttft') ? 'log' : '',
        series: [...lines].map(([name, points]) => ({name, points: points.sort((a, b) => a[0] - b[0])}))});
    });
    const maps = varied.length >= 2 ? [kCurves[1], kCurves[2], kCurves[3]].map(([key, label]) =>
      heat(rows, varied.slice(0, 2), key, label)) : [];
    return [el('h2', {}, `Sweep of ${keys.join(', ')}`),
      el('p', {}, `${rows.length} ${rows.length === 1 ? 'point' : 'points'}` + (r.failed_points ? `, ${r.failed_points} of them failed.` : '.') +
        (r.omitted_points ? ` ${r.omitted_points} more are not shown.` : '')),
      x !== undefined && curves.length ? grid(...curves) : null,
      grid(pareto(rows, 'p99_ttft_ms', 'p99 TTFT'), pareto(rows, 'p99_tpot_ms', 'p99 TPOT')),
      maps.length ? [el('h3', {}, 'Heat maps'), grid(...maps)] : null,
      el('h3', {}, 'All points'), rowsTable('The points of the sweep.', rows),
      localities(rows),
      rows.some((row) => row.error) ? [el('h3', {}, 'Failures'),
        list(rows.filter((row) => row.error).map((row) => `${row.label}: ${row.error}`))] : null,
      notes([...new Set(rows.flatMap((row) => row.warnings || []))],
          [...new Set(rows.flatMap((row) => (row.trust && row.trust.validity) || []))])];
  };
  const bars = (rows, key, label) => chart({title: label, labels: rows.map((row) => row.label), y: label,
    series: [{name: label, points: rows.map((row, i) => [i, value(row.metrics, key)])}]});
  const compare = (r) => {
    const rows = r.runs;
    const differences = rows.filter((row) => row.differences);
    const metrics = kShown.map(([key]) => key).filter((key) => differences.some((row) => row.differences[key]));
    return [el('h2', {}, 'Comparison on the same traffic'),
      terms([['Set-up', r.setup], ['Baseline', r.baseline], ['Replications', r.replications]]),
      grid(...kCurves.filter(([key]) => rows.some((row) => isNumber(value(row.metrics, key))))
          .map(([key, label]) => bars(rows, key, label)), pareto(rows, 'p99_ttft_ms', 'p99 TTFT'),
      pareto(rows, 'p99_tpot_ms', 'p99 TPOT')),
      rowsTable('The configurations.', rows),
      localities(rows),
      differences.length ? [el('h3', {}, `Differences from ${r.baseline}`),
        table('Paired differences with 95% intervals.', ['Configuration', 'metric', 'difference', '95% ±', 'relative',
          'verdict'], differences.flatMap((row) => metrics.map((key) => [row.label, key, row.differences[key].difference,
          row.differences[key].half_width, signed(row.differences[key].relative), row.differences[key].verdict])), [1, 5])]
        : null,
      r.skipped && r.skipped.length ? [el('h3', {}, 'Not compared'),
        list(r.skipped.map((one) => `${one.label}: ${one.reason}`))] : null,
      notes([...new Set(rows.flatMap((row) => row.warnings || []))],
          [...new Set(rows.flatMap((row) => (row.trust && row.trust.validity) || []))])];
  };
  const search = (r) => {
    const label = (one) => one.label || 'this configuration';
    const curve = ([key, name]) => chart({title: `${name} against ${r.key}`, x: `${r.key} (${r.unit})`, y: name,
      xAxis: 'free', yAxis: key.includes('ttft') ? 'log' : '',
      series: r.searches.map((one) => ({name: label(one), points: one.probes.map((probe) =>
        [probe.value, value(probe.metrics, key)]).sort((a, b) => a[0] - b[0])}))});
    const has = ([key]) => r.searches.some((one) => one.probes.some((probe) => isNumber(value(probe.metrics, key))));
    const checked = (one) => one.expert_locality && (one.other_localities || one.expert_locality.no_effect);
    const found = r.searches.filter(checked).flatMap((one) => [
      [label(one), `${one.expert_locality.value} (${one.expert_locality.origin})`, one.value === null ? 'none' : one.value],
      ...(one.other_localities || []).map((other) => [label(one), other.value, other.found === null ? 'none' : other.found]),
      ...(one.expert_locality.no_effect ? [[label(one), `not halved and doubled: ${one.expert_locality.no_effect}`, null]] : [])]);
    return [el('h2', {}, `Search for the ${r.goal} ${r.key}`),
      terms([['SLOs', r.conditions.join(' and ')], ['Precision', percent(r.tolerance)], ['Replications', r.replications]]),
      table('The value found, and the next one that does not meet the SLOs.',
          ['Configuration', `${r.key} (${r.unit})`, 'does not meet at', 'why'], r.searches.map((one) => {
            const missed = one.probes.find((probe) => probe.value === one.does_not_hold_at);
            return [label(one), one.value === null ? 'none' : one.value, one.does_not_hold_at, missed ? missed.reason : '-'];
          }), [3]),
      grid(...kCurves.filter(has).map(curve)),
      found.length ? [el('h3', {}, 'Locality of experts'),
        table('What is found with the locality that was assumed, and with half and twice of it, at most 1.',
            ['Configuration', 'experts.locality', `${r.key} (${r.unit})`], found, [1])] : null,
      el('h3', {}, 'Values that were tried'),
      table('In the order of the search.', ['Configuration', r.key, 'SLOs', 'why'], r.searches.flatMap((one) =>
        one.probes.map((probe) => [label(one), probe.value, probe.holds ? 'met' : 'not met', probe.reason])), [3])];
  };

  // --- decisions -----------------------------------------------------------------------------------------------
  const short = (label) => label.split(' ').map((one) => one.slice(one.indexOf('=') + 1)).join(' ') || 'this configuration';
  const settingsOf = (one) => Object.entries(one.settings).filter(([key, text]) => key !== 'tensor_parallel' || text !== '1')
      .map(([key, text]) => `${key}=${text}`).join(' ') || 'as given';
  const perGpu = (one) => one.capacity_requests_per_s / one.gpus;
  /// "neo, fastdecode: why", one line for each reason. A reason that names its own policy is equal to one that names another.
  const byReason = (configurations) => {
    const names = new Map();
    for (const one of configurations) {
      const name = short(one.configuration);
      const reason = one.reason.replaceAll(`policy ${name}`, 'the policy');
      names.set(reason, [...(names.get(reason) || []), name]);
    }
    return [...names].map(([reason, own]) => `${own.join(', ')}: ${reason}`);
  };
  const rest = (r) => {
    const of = (standing) => r.configurations.filter((one) => one.standing === standing);
    return [
      of('pruned').length ? [el('h3', {}, 'Pruned'), table('These cannot win, so their capacities were not searched.',
          ['Configuration', 'requests/s per GPU with all requests there at once'],
          of('pruned').map((one) => [short(one.configuration), one.ceiling_requests_per_s / one.gpus]))] : null,
      of('misses').length ? [el('h3', {}, 'No rate meets the SLOs'),
        list(of('misses').map((one) => `${short(one.configuration)}: ${one.reason}`))] : null,
      of('impossible').length ? [el('h3', {}, 'Cannot run'), list(byReason(of('impossible')))] : null];
  };
  const trusted = (rows) => notes([], [...new Set(rows.flatMap((one) => one.trust.validity))]);
  const localitiesAtCapacity = (configurations) => localities(configurations.map((one) => ({...one,
    label: short(one.configuration)})), ': of one replica, at the rate that it sustains');
  const advise = (r) => {
    const ranked = r.configurations.filter((one) => one.standing === 'ranked');
    const winner = ranked[0];
    const dependence = [
      ...r.crossovers.map((one) => `${one.quantity}: ${short(one.below)} leads below ${figure(one.at)} ${one.unit}, ` +
        `${short(one.above)} above (now ${figure(one.now)})${one.note ? '; ' + one.note : ''}.`),
      ...r.steady_leads.map((one) => `${one.quantity}: ${short(one.leader)} leads from ${figure(one.from)} to ` +
        `${figure(one.to)} ${one.unit} (now ${figure(one.now)}).`),
      ...r.rank_checks.map((one) => `${short(one.rival)} overtakes under ${one.overtaken_under.length} of ` +
        `${one.perturbations} changes of times by ${percent(r.perturbation)}, and is equal under ${one.ties}.`),
      ...r.least_memory.map((one) => `${one.key}=${one.value} per GPU is enough for ` +
        `${percent(one.share_of_capacity)} of the winner's capacity.`)];
    return [el('h2', {}, 'Advice'),
      terms([['SLOs', r.conditions.join(' and ')], ['Precision', percent(r.tolerance)],
        ['Steady state', r.steady_state ? 'checked' : 'not checked (--quick)'],
        ['Rate', r.rate_per_s === null ? null : `${figure(r.rate_per_s)} requests/s`]]),
      winner ? [el('p', {class: 'lead'}, `${short(winner.configuration)}, ${settingsOf(winner)}: ` +
        `${figure(winner.capacity_requests_per_s)} requests/s on ${figure(winner.gpus)} GPU${winner.gpus === 1 ? '' : 's'}.`),
      el('p', {}, winner.bottleneck), el('p', {}, winner.engine_flags || 'No release of an engine is known to have this policy.')]
        : el('p', {class: 'lead'}, 'Nothing meets the SLOs.'),
      r.closest ? el('p', {}, `${short(r.closest.configuration)} on ${r.closest.gpus} GPU${r.closest.gpus === 1 ? '' : 's'} ` +
        `comes closest: ${r.closest.reason} at ${figure(r.closest.rate_per_s)} requests/s.`) : null,
      r.closest ? list([...r.closest.help.map((one) => `${one.settings}` +
        `${one.changes_answers ? ', which changes what the model answers' : ''}: ${one.reason || 'the SLOs are met at that rate'}`),
        'A looser SLO, faster hardware, or a smaller or quantised model would help.']) : null,
      chart({title: 'Requests/s per GPU under the SLOs', labels: ranked.map((one) => short(one.configuration)),
        y: 'Requests/s per GPU', series: [{name: 'capacity', points: ranked.map((one, i) => [i, perGpu(one)])}],
        none: 'nothing meets the SLOs'}),
      ranked.length ? table('The ranking.', ['Configuration', 'settings', 'GPUs', 'req/s', 'p99 TTFT ms', 'TPOT ms', 'host GB',
        'replicas', 'limited by'], ranked.map((one) => [short(one.configuration), settingsOf(one), one.gpus,
        one.capacity_requests_per_s, value(one.metrics, 'p99_ttft_ms'), value(one.metrics, 'mean_tpot_ms'),
        one.host_bytes / 1e9, one.fleet ? one.fleet.replicas : null, one.resource]), [1, 8]) : null,
      dependence.length ? [el('h3', {}, 'What the ranking depends on'), list(dependence)] : null,
      localitiesAtCapacity(ranked), rest(r), trusted(ranked)];
  };
  const plan = (r) => {
    const fleets = r.configurations.filter((one) => one.fleet && one.fleet.holds);
    const best = new Map(r.pareto_front.map((one) => [one.configuration, one]));
    const priced = fleets.length > 0 && fleets.every((one) => value(one.fleet.metrics, 'cost_per_million_output_tokens') !== null);
    const cost = (one) => (priced ? value(one.fleet.metrics, 'cost_per_million_output_tokens') : one.fleet.gpus);
    const label = priced ? 'Cost per million output tokens' : 'GPUs';
    const titled = priced ? 'cost per million output tokens' : 'GPUs';
    const perHour = (one) => (priced ? cost(one) * value(one.fleet.metrics, 'output_throughput_tokens_per_s') * 3600 / 1e6 : null);
    const against = (key, name) => chart({title: `${name} against ${titled}`, x: label, y: `${name} (ms)`, xAxis: 'free',
      series: [['Pareto front', true], ['other fleets', false]].map(([series, onFront]) => ({name: series, dots: true,
        points: fleets.filter((one) => best.has(one.configuration) === onFront)
            .map((one) => [cost(one), value(one.fleet.metrics, key)])})),
      table: [`${name} of each fleet.`, ['Fleet', label, 'ms'], fleets.map((one) => [short(one.configuration), cost(one),
        value(one.fleet.metrics, key)])], none: 'no fleet meets the SLOs'});
    return [el('h2', {}, `Plan for ${figure(r.rate_per_s)} requests/s`),
      terms([['SLOs', r.conditions.join(' and ')], ['Steady state', r.steady_state ? 'checked' : 'not checked (--quick)']]),
      grid(against('p99_ttft_ms', 'p99 TTFT'), against('mean_tpot_ms', 'mean TPOT')),
      table(`Fleets that meet the SLOs. On the front: no other fleet is better in ${priced ? 'cost' : 'number of GPUs'}, ` +
          'p99 TTFT and TPOT at once.',
          ['Fleet', 'front', 'replicas', 'GPUs', 'cost/h', 'p99 TTFT ms', 'TPOT ms'], fleets.map((one) =>
            [short(one.configuration), best.has(one.configuration) ? 'yes' : 'no', one.fleet.replicas, one.fleet.gpus, perHour(one),
              value(one.fleet.metrics, 'p99_ttft_ms'), value(one.fleet.metrics, 'mean_tpot_ms')]), [1]),
      localitiesAtCapacity(fleets), rest(r), trusted(fleets)];
  };

  // --- evidence ------------------------------------------------------------------------------------------------
  /// Lists and named values as "4, 5" and "decode 4, prompt 5".
  const text = (x) => {
    if (x === null || x === undefined || typeof x === 'boolean') return x === null || x === undefined ? '-' : String(x);
    if (typeof x !== 'object') return figure(x);
    if (Array.isArray(x)) return x.map(text).join(', ');
    return Object.entries(x).map(([name, one]) => `${name} ${text(one)}`).join(', ');
  };
  /// Numbers of a claim that stand in the same place on both sides.
  const paired = (expected, simulated, name) => {
    if (isNumber(expected) && isNumber(simulated)) return [[name, expected, simulated]];
    if (!expected || !simulated || typeof expected !== 'object' || typeof simulated !== 'object') return [];
    return Object.keys(expected).filter((key) => key in simulated).flatMap((key) =>
      paired(expected[key], simulated[key], `${name} ${key}`));
  };
  const reproduce = (r) => {
    const pairs = r.claims.filter((one) => one.simulated !== null).flatMap((one) =>
      paired(one.expected, one.simulated, one.id).map((pair) => [...pair, one.verdict]));
    const usable = pairs.filter(([, expected, simulated]) => expected > 0 && simulated > 0);
    const verdicts = [...new Set(usable.map((one) => one[3]))];
    const numbers = usable.flatMap(([, a, b]) => [a, b]);
    const ends = usable.length ? [Math.min(...numbers), Math.max(...numbers)] : [];
    const s = r.summary;
    return [el('h2', {}, 'Published claims'),
      el('p', {class: 'lead'}, `${s.passed} of ${s.counted} counted claims pass.`),
      grid(chart({title: 'Expected against simulated', x: 'Expected', y: 'Simulated', xAxis: 'log', yAxis: 'log',
        series: [...verdicts.map((verdict) => ({name: verdict, dots: true,
          points: usable.filter((one) => one[3] === verdict).map((one) => [one[1], one[2]])})),
        ...(usable.length ? [{name: 'equal', plain: true, points: ends.map((one) => [one, one])}] : [])],
        none: 'no claim states a number that was simulated',
        description: 'Each number of a claim that is above 0 on both sides.',
        table: ['Numbers of the claims.', ['Claim', 'expected', 'simulated', 'simulated / expected - 1'],
          pairs.map(([name, a, b]) => [name, a, b, a ? signed(b / a - 1) : '-'])]})),
      el('h3', {}, 'Claims'),
      table('Expected, simulated, verdict.', ['Claim', 'what', 'expected', 'simulated', '95% interval', 'verdict', 'cause'],
          r.claims.map((one) => [one.id, one.claim, text(one.expected), text(one.simulated), text(one.interval),
            one.verdict, one.cause || '-']), [1, 2, 3, 4, 5, 6])];
  };
  const validate = (r) => {
    const statistics = ['mean', 'p50', 'p90', 'p95', 'p99'];
    const kinds = kLatencies.filter(([key]) => r.metrics[`mean_${key}`]);
    const both = (of) => [['measured', r.load.measured], ['simulated', r.load.simulated]].map(([name, points]) =>
      ({name, points: points.map((point) => [point.seconds, of(point)])}));
    const percentOf = (x) => (isNumber(x) ? 100 * x : null);
    const curves = r.curves || {};
    const on = r.log.device ? `${r.log.model} on ${r.log.device}` : r.log.model;
    return [el('h2', {}, `Validation: ${on}`),
      terms([['Log', r.log.path], ['Requests', figure(r.log.requests)], ['Measured', `${r.log.engine}: ${on}`],
        ['Simulated', `${r.run.setup.model} on ${r.run.setup.tensor_parallel_gpus} x ${r.run.setup.gpu}, policy ` +
          `${r.run.setup.policy}, engine ${r.run.setup.engine}`],
        ['Run', r.run.complete === false ? 'INCOMPLETE: the run was interrupted' : null]]),
      el('h3', {}, 'Latency'),
      kinds.length ? table('In ms. Error: simulated / measured - 1.', ['', 'side', ...statistics], kinds.flatMap(([key, label]) =>
        [['measured', (one) => one.measured], ['simulated', (one) => one.simulated], ['error', (one) => signed(one.error)]]
            .map(([side, of]) => [label, side, ...statistics.map((one) => {
              const metric = r.metrics[`${one}_${key}`];
              return metric ? of(metric) : null;
            })])), [1]) : el('p', {class: 'none'}, 'No data: no request finished on both sides.'),
      grid(...kLatencies.filter(([key]) => key !== 'itl_ms').map(([key, label]) => chart({title: `Distribution of ${label}`,
        x: `${label} (ms)`, y: 'Requests (%)', yMax: 100, xAxis: 'log',
        description: `Percentage of the requests whose ${label} is at most this long, measured and simulated.`,
        none: 'no request has it on both sides', series: ['measured', 'simulated'].map((side) =>
          ({name: side, points: ((curves[key] || {})[side] || []).map(([share, ms]) => [ms, share])}))})),
      chart({title: 'Error of E2E, request by request', x: 'Request, in order of queueing', y: 'Error of E2E (%)',
        xAxis: 'free', yAxis: 'free', none: 'no request finished on both sides',
        description: 'Simulated over measured end-to-end latency, less 1.',
        series: [{name: 'error', dots: true, points: (r.e2e_errors || []).map(([i, error]) => [i, percentOf(error)])}]})),
      el('h3', {}, 'Requests one by one'),
      Object.keys(r.per_request || {}).length ? table('Errors of single requests: |simulated / measured - 1|. Bias: the ' +
        'mean of the signed errors.', ['Latency', 'requests', 'median', 'p90', 'p95', 'largest', 'bias', 'worst request'],
      Object.entries(r.per_request).map(([key, one]) => [key, one.n, percent(one.median), percent(one.p90),
        percent(one.p95), percent(one.largest), signed(one.bias), one.worst]), [7]) : el('p', {class: 'none'}, 'No data.'),
      el('h3', {}, 'Load'),
      Object.keys(r.load.figures || {}).length ? table(`Mean over time, and peak. Measured load: ${r.load.measured_from}.`,
          ['Load', 'measured', 'simulated', 'error'], Object.entries(r.load.figures).map(([key, one]) =>
            [key, one.measured, one.simulated, signed(one.error)])) : el('p', {class: 'none'}, 'No data.'),
      grid(chart({title: 'Running requests', x: 'Time (s)', y: 'Requests', series: both((one) => one.running)}),
          chart({title: 'Waiting requests', x: 'Time (s)', y: 'Requests', series: both((one) => one.waiting)}),
          chart({title: 'GPU KV in use', x: 'Time (s)', y: 'Share (%)', series: both((one) => percentOf(one.kv_fraction)),
            none: 'the log does not state it'})),
      notes(r.run.warnings, r.run.validity)];
  };

  // --- the page ------------------------------------------------------------------------------------------------
  const kinds = {run, sweep, compare, search, advise, plan, reproduce, validate};
  for (const {kind, name, result} of results) {
    const section = el('section', {});
    if (results.length > 1) section.append(el('p', {class: 'none'}, name));
    for (const part of kinds[kind](result).flat(Infinity)) {
      if (part) section.append(part);
    }
    main.append(section);
  }
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  addEventListener('beforeprint', () => charts.forEach((one) => one.chart.resize()));
  addEventListener('afterprint', () => charts.forEach((one) => one.chart.resize()));
})();
