# CPU time of the operations of vLLM's offloading connector: the defaults of engine.kv_connector_*_ns.
import collections, hashlib, logging, os, time, ctypes
class Block(ctypes.Structure):
    _fields_=[("ref_cnt", ctypes.c_int32),("slot", ctypes.c_int64)]
log=logging.getLogger("x"); log.addHandler(logging.StreamHandler(open(os.devnull,"w"))); log.setLevel(logging.INFO)
for n in (10**4,10**5):
    keys=[hashlib.sha256(str(i).encode()).digest() for i in range(n)]
    d=collections.OrderedDict((k,Block(-1,i)) for i,k in enumerate(keys))
    some=keys[::7]*5
    best={}
    for rep in range(7):
        t=time.perf_counter()
        for k in some:
            if k not in d: pass
        best.setdefault('lookup',[]).append((time.perf_counter()-t)/len(some))
        t=time.perf_counter()
        for k in reversed(some):
            if d.get(k): d.move_to_end(k)
        best.setdefault('touch',[]).append((time.perf_counter()-t)/len(some))
        t=time.perf_counter()
        for k,b in d.items():
            if b.ref_cnt==0: break
        best.setdefault('scan',[]).append((time.perf_counter()-t)/n)
        nxt={str(i):10 for i in range(256)}
        req={str(i):[1,2,3] for i in range(256)}
        full={str(i):167 for i in range(256)}
        t=time.perf_counter()
        for _ in range(20):
            for r in req:
                blocks=req[r]; total=full[r]+1; num=total//16
                start=nxt.get(r,0); new=num-start
                if new<=0: continue
        best.setdefault('visit',[]).append((time.perf_counter()-t)/20/256)
        t=time.perf_counter()
        for i in range(2000): log.warning("Request %s: cannot store %s blocks","req-%d"%i,3)
        best.setdefault('warning',[]).append((time.perf_counter()-t)/2000)
    print(n,{k:round(sorted(v)[len(v)//2]*1e9,1) for k,v in best.items()})
