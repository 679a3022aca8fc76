-- Highest bid: the bids with the highest price of each 10 s window.
-- sources: bid
CREATE TABLE q7 AS
  SELECT auction, price, bidder, dateTime, extra FROM (
    SELECT *, RANK() OVER (PARTITION BY window_start ORDER BY price DESC) AS place
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))) q
  WHERE place = 1;

-- answer
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid b JOIN (
  SELECT max(price) AS top, window_start FROM hops(bid, 10000, 10000) GROUP BY window_start) w
ON b.price = w.top AND b.dateTime >= w.window_start AND b.dateTime < w.window_start + INTERVAL 10 SECOND
