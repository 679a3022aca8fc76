-- Hot items: for each 10 s window that starts every 2 s, the auctions with the most bids.
-- sources: bid
CREATE TABLE q5 AS
  WITH n AS (
    SELECT auction, window_start, window_end, COUNT(*) AS num
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end /* EMIT FINAL */),
  m AS (SELECT window_start, MAX(num) AS top FROM n GROUP BY window_start)
  SELECT n.auction AS auction, n.num
  FROM n JOIN m ON n.window_start = m.window_start AND n.num = m.top;

-- answer
WITH n AS (
  SELECT auction, window_start, count(*) AS num FROM hops(bid, 2000, 10000) GROUP BY ALL)
SELECT auction, num FROM n
WHERE num >= (SELECT max(num) FROM n m WHERE m.window_start = n.window_start)
